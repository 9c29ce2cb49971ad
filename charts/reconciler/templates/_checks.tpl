{{/* What a schema cannot say in words that help. */}}
{{- define "reconciler.checks" -}}
{{- $auth := .Values.nats.auth }}
{{- $named := compact (list $auth.creds $auth.nkey $auth.context) | len }}
{{- if and $auth.secretName (ne $named 1) }}
{{- fail (printf "nats.auth.secretName is %s: say which of its keys holds what, with exactly one of nats.auth.creds, nats.auth.nkey and nats.auth.context" $auth.secretName) }}
{{- end }}
{{- if and (not $auth.secretName) (gt $named 0) }}
{{- fail "nats.auth.secretName is empty: in which Secret is the key that nats.auth names?" }}
{{- end }}
{{- with .Values.source }}
{{- if and (eq .type "configMap") (eq (empty .configMap.name) (empty .configMap.manifests)) }}
{{- fail "source.configMap: give either the name of a ConfigMap that is there, or the manifests themselves" }}
{{- end }}
{{- end }}
{{- if and .Values.serviceMonitor.enabled .Values.podMonitor.enabled }}
{{- fail "serviceMonitor.enabled and podMonitor.enabled: both at once would count every pod twice; enable one of them" }}
{{- end }}
{{- if and .Values.planner.enabled (not (include "reconciler.plannerRepository" .)) }}
{{- fail "planner.git.repository: which repository is planned in? That of source.gitSync is not given either" }}
{{- end }}
{{- end -}}
