{{- define "reconciler.plannerRepository" -}}
{{- default .Values.source.gitSync.repository .Values.planner.git.repository -}}
{{- end -}}

{{- define "reconciler.plannerContainer" -}}
image: {{ include "reconciler.image" (list .Values.planner.image .Chart.AppVersion) }}
imagePullPolicy: {{ .Values.planner.image.pullPolicy }}
securityContext:
  {{- include "reconciler.restricted" . | nindent 2 }}
{{- with .Values.planner.resources }}
resources: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* How git logs in, with what is mounted there. Called with the Secret, the repository and the user. */}}
{{- define "reconciler.gitEnvironment" -}}
- {name: HOME, value: /tmp}
- {name: GIT_TERMINAL_PROMPT, value: "0"}
{{- if index . 0 }}
{{- if include "reconciler.overSsh" (index . 1) }}
- {name: GIT_SSH_COMMAND, value: "ssh -i /credentials/git/ssh -o IdentitiesOnly=yes -o UserKnownHostsFile=/credentials/git/known_hosts"}
{{- else }}
- {name: GIT_CONFIG_COUNT, value: "1"}
- {name: GIT_CONFIG_KEY_0, value: credential.helper}
- {name: GIT_CONFIG_VALUE_0, value: {{ printf "!printf 'username=%%s\\npassword=%%s\\n' '%s' \"$(cat /credentials/git/password)\" #" (index . 2) | quote }}}
{{- end }}
{{- end }}
{{- end -}}
