"""Long random walks: manifests change again and again, while processes die and servers refuse, fall silent or elect."""
