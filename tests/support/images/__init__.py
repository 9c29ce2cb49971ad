"""The images of the Dockerfile, built by buildah, without an engine."""
