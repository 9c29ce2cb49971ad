"""The images of the Dockerfile: built by buildah, without an engine, and run in namespaces of their own."""
