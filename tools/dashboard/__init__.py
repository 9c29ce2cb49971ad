"""The Grafana dashboard: what its panels show, the JSON that Grafana imports, and a picture of how they lie."""
