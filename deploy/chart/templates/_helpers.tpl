{{- define "stallward.name" -}}
{{- $name := .Release.Name -}}
{{- if not (contains "stallward" $name) }}{{ $name = printf "%s-stallward" $name }}{{ end -}}
{{- trunc 52 $name | trimSuffix "-" -}}
{{- end }}

{{- define "stallward.selector" -}}
app.kubernetes.io/name: stallward
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "stallward.labels" -}}
{{ include "stallward.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- define "stallward.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{/* A value in TOML. Strings, numbers and truth values are written as in JSON. */}}
{{- define "stallward.value" -}}
{{- if kindIs "map" . -}}
{ {{- range $i, $key := keys . | sortAlpha }}{{ if $i }},{{ end }} {{ $key }} = {{ include "stallward.value" (get $ $key) }}{{ end }} }
{{- else if kindIs "slice" . -}}
[{{ range $i, $one := . }}{{ if $i }}, {{ end }}{{ include "stallward.value" $one }}{{ end }}]
{{- else -}}
{{ toJson . }}
{{- end -}}
{{- end }}

{{- define "stallward.table" -}}
{{- range $key := keys . | sortAlpha }}
{{ $key }} = {{ include "stallward.value" (get $ $key) }}
{{- end }}
{{- end }}

{{/* The daemon's configuration: what the values say, and where things are in the pod. */}}
{{- define "stallward.config" -}}
{{- $own := dict
  "node" (dict "cgroup" "/host/cgroup")
  "service" (dict "socket" "/run/stallward/actuator.sock")
  "journal" (dict "path" "/run/stallward/journal")
  "record" (dict "dir" "/var/lib/stallward/recording")
  "policy" (dict "store" "/var/lib/stallward/policies") -}}
{{- if .Values.metrics.enabled -}}
{{- $metrics := dict "metrics" (printf "0.0.0.0:%v" .Values.metrics.port) "metrics_public" true -}}
{{- $own = mergeOverwrite $own (dict "service" $metrics) -}}
{{- end -}}
{{- with .Values.remote -}}
{{- if .enabled -}}
{{- if not .secretName -}}
{{- fail "remote.enabled needs remote.secretName: a Secret with tls.crt, tls.key and ca.crt." -}}
{{- end -}}
{{- if and $.Values.metrics.enabled (eq (int .port) (int $.Values.metrics.port)) -}}
{{- fail "remote.port is that of the metrics: choose another one." -}}
{{- end -}}
{{- $remote := dict
  "address" (printf "0.0.0.0:%v" .port)
  "certificate" "/etc/stallward-tls/tls.crt"
  "key" "/etc/stallward-tls/tls.key"
  "client_ca" "/etc/stallward-tls/ca.crt"
  "operators" (.operators | default list) -}}
{{- $own = mergeOverwrite $own (dict "remote" $remote) -}}
{{- end -}}
{{- end -}}
{{- $all := mergeOverwrite (deepCopy .Values.config) $own -}}
{{- /* Not in the values: Helm would merge it into what a user writes there. */}}
{{- if not $all.protected }}{{ $_ := set $all "protected" (dict "pod" (dict "role" "protected")) }}{{ end }}
{{- range $name := keys $all | sortAlpha }}
{{- $table := get $all $name }}
{{- if kindIs "slice" $table }}
{{- range $table }}
[[{{ $name }}]]
{{- include "stallward.table" . }}
{{ end }}
{{- else }}
[{{ $name }}]
{{- include "stallward.table" $table }}
{{ end }}
{{- end }}
{{- end }}

{{/* Root, because groups belong to root. No privileged container; the caller adds capabilities. */}}
{{- define "stallward.rights" -}}
runAsUser: 0
runAsNonRoot: false
privileged: false
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* Whoever restores needs what levers need, but reads no other process. */}}
{{- define "stallward.restorer" -}}
image: {{ include "stallward.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
resources:
  {{- toYaml .Values.restorerResources | nindent 2 }}
securityContext:
  {{- include "stallward.rights" . | nindent 2 }}
  capabilities:
    drop: ["ALL"]
    add:
      - DAC_OVERRIDE # OOM scores, and files of groups that others own
      - IPC_LOCK # stays in memory under pressure
      - KILL # continues what was stopped
      - SYS_NICE # runs before the background; nice values, CPUs
      - SYS_RESOURCE # OOM scores below zero
volumeMounts:
  - {name: config, mountPath: /etc/stallward, readOnly: true}
  - {name: cgroup, mountPath: /host/cgroup}
  - {name: run, mountPath: /run/stallward}
  - {name: node-lock, mountPath: /run/stallward-node}
{{- end }}
