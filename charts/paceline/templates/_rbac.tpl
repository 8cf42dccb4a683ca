{{- /*
A part's rights: "paceline.<part>.rules" wherever services may be, "paceline.<part>.home" in paceline's own namespace.
With watchNamespaces the former become one Role in each of them, and nothing of the cluster's own can be read.
*/ -}}
{{- define "paceline.rbac" -}}
{{- $rules := include (printf "paceline.%s.rules" .part) .root -}}
{{- $cluster := include (printf "paceline.%s.cluster" .part) .root -}}
{{- $home := include (printf "paceline.%s.home" .part) .root -}}
{{- $namespace := .root.Release.Namespace -}}
apiVersion: v1
kind: ServiceAccount
metadata:
  {{- include "paceline.metadata" . | nindent 2 }}
automountServiceAccountToken: false
{{- if .root.Values.watchNamespaces }}
{{- range $watched := .root.Values.watchNamespaces }}
{{ include "paceline.role" (dict "root" $.root "part" $.part "namespace" $watched "name" (printf "%s:paceline-%s" $namespace $.part) "rules" $rules) }}
{{- end }}
{{- else }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $namespace }}:paceline-{{ .part }}
  labels:
    {{- include "paceline.labels" . | nindent 4 }}
rules:
  {{- $rules | nindent 2 }}
  {{- with trim $cluster }}
  {{- . | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $namespace }}:paceline-{{ .part }}
  labels:
    {{- include "paceline.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "{{ $namespace }}:paceline-{{ .part }}"}
subjects:
  - {kind: ServiceAccount, name: paceline-{{ .part }}, namespace: {{ $namespace }}}
{{- end }}
{{- with trim $home }}
{{ include "paceline.role" (dict "root" $.root "part" $.part "namespace" $namespace "name" (printf "paceline-%s" $.part) "rules" .) }}
{{- end }}
{{- end }}

{{- define "paceline.role" -}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ quote .namespace }}
  labels:
    {{- include "paceline.labels" . | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ quote .namespace }}
  labels:
    {{- include "paceline.labels" . | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: "{{ .name }}"}
subjects:
  - {kind: ServiceAccount, name: paceline-{{ .part }}, namespace: {{ .root.Release.Namespace }}}
{{- end }}

{{- /* `create` cannot be bound to a name: the API server does not know it yet when it asks. */ -}}
{{- define "paceline.lease" -}}
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  verbs: [create]
- apiGroups: [coordination.k8s.io]
  resources: [leases]
  resourceNames: [{{ .name }}]
  verbs: [get, update]
{{- end }}
