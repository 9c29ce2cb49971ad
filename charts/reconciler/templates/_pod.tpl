{{/* What every pod of the chart has in common. */}}
{{- define "reconciler.pod" -}}
serviceAccountName: {{ include "reconciler.serviceAccountName" . }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.affinity }}
affinity: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- end -}}

{{- define "reconciler.restricted" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end -}}

{{/* Options that stand before the command, because there is no variable for them. */}}
{{- define "reconciler.connectionArguments" -}}
{{- if .Values.nats.tls.first }}
- --tlsfirst
{{- end }}
{{- range $flag, $value := dict "--inbox-prefix" .Values.nats.inboxPrefix "--js-domain" .Values.nats.domain "--js-api-prefix" .Values.nats.apiPrefix "--js-event-prefix" .Values.nats.eventPrefix }}
{{- with $value }}
- {{ $flag }}
- {{ . | quote }}
{{- end }}
{{- end }}
{{- end -}}

{{/* What every command of ours needs to know: also those that somebody runs with `kubectl exec`. */}}
{{- define "reconciler.environment" -}}
- {name: RECONCILER_OWNER, value: {{ .Values.owner | quote }}}
- {name: RECONCILER_FILE, value: {{ include "reconciler.manifests" . | quote }}}
{{- with .Values.environment }}
- {name: RECONCILER_ENV, value: {{ . | quote }}}
{{- end }}
- {name: RECONCILER_POLICY, value: {{ .Values.run.policy | quote }}}
- {name: RECONCILER_MAX_CHANGE_PERCENT, value: {{ .Values.run.maxChangePercent | int | quote }}}
{{- if .Values.run.adopt }}
- {name: RECONCILER_ADOPT, value: "true"}
{{- end }}
{{- with .Values.nats.url }}
- {name: NATS_URL, value: {{ . | quote }}}
{{- end }}
{{- with .Values.nats.timeout }}
- {name: NATS_TIMEOUT, value: {{ . | quote }}}
{{- end }}
{{- with .Values.nats.auth }}
{{- if .creds }}
- {name: NATS_CREDS, value: /credentials/nats/user.creds}
{{- else if .nkey }}
- {name: NATS_NKEY, value: /credentials/nats/user.nk}
{{- else if .context }}
- {name: XDG_CONFIG_HOME, value: /credentials}
- {name: NATS_CONTEXT, value: reconciler}
{{- end }}
{{- end }}
{{- with .Values.nats.tls }}
{{- if .secretName }}
- {name: NATS_CA, value: /credentials/tls/ca.crt}
{{- end }}
{{- if .clientCertificate }}
- {name: NATS_CERT, value: /credentials/tls/tls.crt}
- {name: NATS_KEY, value: /credentials/tls/tls.key}
{{- end }}
{{- end }}
{{- end -}}

{{- define "reconciler.mounts" -}}
- {name: manifests, mountPath: /manifests, readOnly: true}
- {name: tmp, mountPath: /tmp}
{{- if .Values.nats.auth.secretName }}
- {name: nats, mountPath: /credentials/nats, readOnly: true}
{{- end }}
{{- if .Values.nats.tls.secretName }}
- {name: tls, mountPath: /credentials/tls, readOnly: true}
{{- end }}
{{- end -}}

{{- define "reconciler.volumes" -}}
- name: tmp
  emptyDir: {}
- name: manifests
{{- if eq .Values.source.type "gitSync" }}
  emptyDir: {}
{{- else if eq .Values.source.type "configMap" }}
  configMap: {name: {{ default (printf "%s-manifests" (include "reconciler.fullname" .)) .Values.source.configMap.name }}}
{{- else }}
{{- toYaml .Values.source.existingVolume | nindent 2 }}
{{- end }}
{{- with .Values.nats.auth }}
{{- if .secretName }}
- name: nats
  secret:
    secretName: {{ .secretName }}
    defaultMode: 0440
    items:
    {{- if .creds }}
    - {key: {{ .creds | quote }}, path: user.creds}
    {{- else if .nkey }}
    - {key: {{ .nkey | quote }}, path: user.nk}
    {{- else }}
    - {key: {{ .context | quote }}, path: context/reconciler.json}
    {{- end }}
{{- end }}
{{- end }}
{{- if .Values.nats.tls.secretName }}
- name: tls
  secret: {secretName: {{ .Values.nats.tls.secretName }}, defaultMode: 0440}
{{- end }}
{{- include "reconciler.gitSyncVolumes" . }}
{{- end -}}
