{{/* Where the daemon finds the manifests. */}}
{{- define "reconciler.manifests" -}}
{{- $root := ternary "/manifests/current" "/manifests" (eq .Values.source.type "gitSync") -}}
{{- with .Values.source.path | trimAll "/" }}{{ printf "%s/%s" $root . }}{{ else }}{{ $root }}{{ end -}}
{{- end -}}

{{- define "reconciler.overSsh" -}}
{{- if regexMatch "^(ssh://|[^/]+@[^/]+:)" . }}yes{{ end -}}
{{- end -}}

{{/* A container that starts before the others, ends after them, and lets them start as soon as there is a checkout. */}}
{{- define "reconciler.gitSync" -}}
{{- if eq .Values.source.type "gitSync" }}
{{- with .Values.source.gitSync }}
initContainers:
- name: git-sync
  image: {{ include "reconciler.image" (list .image "") }}
  imagePullPolicy: {{ .image.pullPolicy }}
  restartPolicy: Always
  args:
  - --repo={{ .repository }}
  - --ref={{ .ref }}
  - --period={{ .period }}
  - --root=/manifests
  - --link=current
  - --max-failures=-1
  # The daemon may be reading what the last commit was.
  - --stale-worktree-timeout=5m
  - --http-bind=:8081
  {{- if .secretName }}
  {{- if include "reconciler.overSsh" .repository }}
  - --ssh-key-file=/credentials/git/ssh
  - --ssh-known-hosts-file=/credentials/git/known_hosts
  {{- else }}
  - --username={{ .username }}
  - --password-file=/credentials/git/password
  {{- end }}
  {{- end }}
  {{- with .extraArgs }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  ports:
  - {name: git-sync, containerPort: 8081}
  startupProbe:
    httpGet: {path: /, port: git-sync}
    periodSeconds: 2
    failureThreshold: 60
  securityContext:
    {{- with .securityContext }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
    {{- include "reconciler.restricted" $ | nindent 4 }}
  {{- with .resources }}
  resources: {{- toYaml . | nindent 4 }}
  {{- end }}
  volumeMounts:
  - {name: manifests, mountPath: /manifests}
  - {name: git-tmp, mountPath: /tmp}
  {{- if .secretName }}
  - {name: git, mountPath: /credentials/git, readOnly: true}
  {{- end }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "reconciler.gitSyncVolumes" -}}
{{- if eq .Values.source.type "gitSync" }}
- name: git-tmp
  emptyDir: {}
{{- with .Values.source.gitSync.secretName }}
- name: git
  secret: {secretName: {{ . }}, defaultMode: 0440}
{{- end }}
{{- end }}
{{- end -}}
