{{- /* Every helper takes (dict "root" $ "part" "operator"): names are fixed, so that docs and the command line know them. */ -}}

{{- define "paceline.name" -}}paceline-{{ .part }}{{- end }}

{{- define "paceline.selector" -}}
app.kubernetes.io/name: paceline-{{ .part }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- end }}

{{- /* No version of chart or paceline: a label that changes with each release would roll pods for nothing. */ -}}
{{- define "paceline.labels" -}}
{{ include "paceline.selector" . }}
app.kubernetes.io/part-of: paceline
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- end }}

{{- define "paceline.metadata" -}}
name: paceline-{{ .part }}
namespace: {{ .root.Release.Namespace }}
labels:
  {{- include "paceline.labels" . | nindent 2 }}
{{- end }}

{{- define "paceline.image" -}}
{{- $own := index .root.Values .part -}}
{{- $image := .root.Values.image -}}
{{- $own.image | default (printf "%s/%s:%s" $image.repository .part ($image.tag | default .root.Chart.AppVersion)) -}}
{{- end }}

{{- /* Never the release's own: the gateway lists all Secrets of this namespace. */ -}}
{{- define "paceline.keyNamespace" -}}
{{- $own := .Release.Namespace -}}
{{- $name := .Values.tenantKeys.namespace | default (printf "%s-tenant-keys" $own) -}}
{{- if eq $name $own }}{{ fail "tenantKeys.namespace: the release's own namespace holds paceline's own Secrets; name another one" }}{{ end -}}
{{- if gt (len $name) 63 }}{{ fail (printf "tenantKeys.namespace: %s has more than 63 characters; name a shorter one" $name) }}{{ end -}}
{{- $name -}}
{{- end }}

{{- /* The small Prometheus is there unless yours is. */ -}}
{{- define "paceline.ownPrometheus" -}}
{{- if and .Values.prometheus.install (not .Values.prometheus.url) }}true{{ end -}}
{{- end }}

{{- define "paceline.prometheusUrl" -}}
{{- if .Values.prometheus.url -}}
{{ .Values.prometheus.url }}
{{- else if include "paceline.ownPrometheus" . -}}
http://paceline-prometheus.{{ .Release.Namespace }}.svc:9090
{{- end -}}
{{- end }}

{{- /* A file of rules or a dashboard, whose runbooks are read where this install says. */ -}}
{{- define "paceline.withRunbooks" -}}
{{- .root.Files.Get .path | replace "https://paceline.dev/docs/runbooks/" (printf "%s/" .root.Values.monitoring.runbooks) -}}
{{- end }}
