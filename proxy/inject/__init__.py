"""Injection: the sidecar added to Kubernetes manifests, as Linkerd's injector adds it, without a cluster.

The settings are those of Linkerd's Helm chart, by their names (settings.py). Annotations of a namespace and of a pod
change them (annotations.py). They become containers and volumes (render.py), which are put into whatever kind of manifest
has a pod in it (manifest.py), and which is read as Kubernetes reads it (documents.py).
"""
