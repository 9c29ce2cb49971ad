"""NACK's resources, in and out."""
