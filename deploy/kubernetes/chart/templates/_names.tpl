{{- define "gpumem.labels" -}}
app.kubernetes.io/name: gpumem
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- define "gpumem.selector" -}}
app.kubernetes.io/name: gpumem
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "gpumem.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- /* What is not in a namespace has to have a name of its own. */ -}}
{{- define "gpumem.clusterName" -}}
gpumem-{{ .Release.Namespace }}-{{ .Release.Name }}
{{- end }}
