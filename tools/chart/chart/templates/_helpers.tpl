{{/* The host file: the one that manifests/ has, with the values. */}}
{{- define "metes.conf" -}}
{{- $name := ternary "files/own-etcd.conf" "files/metes.conf" .Values.ownEtcd -}}
{{- $file := mergeOverwrite (.Files.Get $name | fromJson) (deepCopy .Values.hostFile) -}}
{{- $etcd := set $file.etcd "endpoints" .Values.endpoints -}}
{{- $file = set $file "cluster" .Values.cluster -}}
{{- $file = set $file "allowed" .Values.allowed -}}
{{- $file | toPrettyJson -}}
{{- end -}}

{{/* Text if the members of etcd have addresses of IPv6. */}}
{{- define "metes.ipv6" -}}
{{- if contains "[" (first .Values.endpoints) }}yes{{ end -}}
{{- end -}}

{{/* The namespaces get labels and policies, so they cannot be there before. */}}
{{- define "metes.namespaces" -}}
{{- range list .Values.systemNamespace .Values.namespace -}}
{{- if eq . $.Release.Namespace -}}
{{- $remedy := "install the release in another one, like --namespace metes-release --create-namespace" -}}
{{- fail (printf "the chart makes the namespace %s: %s" . $remedy) -}}
{{- end -}}
{{- end -}}
{{- end -}}
