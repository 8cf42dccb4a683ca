{{- /* What every pod of the control plane has in common; passes the pod security standard "restricted". */ -}}

{{- define "paceline.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "paceline.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "paceline.placement" -}}
enableServiceLinks: false
{{- with .root.Values.priorityClassName }}
priorityClassName: {{ quote . }}
{{- end }}
{{- with .root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ quote . }}
  {{- end }}
{{- end }}
{{- with .root.Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .root.Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
  {{- range $key := list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "paceline.selector" $ | nindent 8 }}
  {{- end }}
{{- end }}

{{- /* A process of ours: module paceline_<part>.main with its file; more in "ports" and "mounts". */ -}}
{{- define "paceline.container" -}}
name: {{ .part }}
image: {{ include "paceline.image" . | quote }}
imagePullPolicy: {{ .root.Values.image.pullPolicy }}
command: [python, -m, paceline_{{ .part }}.main]
env:
  - {name: PACELINE_CONFIG, value: /etc/paceline/config/{{ .part }}.yaml}
  - {name: PACELINE_LOG_LEVEL, value: {{ .root.Values.logLevel }}}
  {{- with (index .root.Values .part).tracesEndpoint }}
  - {name: OTEL_EXPORTER_OTLP_ENDPOINT, value: {{ quote . }}}
  {{- end }}
securityContext:
  {{- include "paceline.containerSecurity" . | nindent 2 }}
resources:
  {{- toYaml (index .root.Values .part).resources | nindent 2 }}
startupProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 60
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 2
  timeoutSeconds: 2
  failureThreshold: 3
{{- end }}

{{- define "paceline.config" -}}
apiVersion: v1
kind: ConfigMap
metadata:
  {{- include "paceline.metadata" . | nindent 2 }}
data:
  {{ .part }}.yaml: |
    {{- include (printf "paceline.%s.config" .part) .root | nindent 4 }}
{{- end }}

{{- /* The pods roll when their file changes. */ -}}
{{- define "paceline.podMetadata" -}}
labels:
  {{- include "paceline.labels" . | nindent 2 }}
annotations:
  paceline.dev/config: {{ include (printf "paceline.%s.config" .part) .root | sha256sum }}
{{- end }}

{{- define "paceline.cluster" -}}
cluster:
  namespaces: {{ toJson .Values.watchNamespaces }}
{{- end }}
