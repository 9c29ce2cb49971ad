"""Incidents: what each alert is about, made on real servers, and the runbook that has to end it."""
