// Package deploy owns the files that deploy a fleet behind Envoy: Compose, a Helm chart, alert rules. It
// has no code but their tests and those of a release's kustomization. It is a module of its own so that what
// those import, Helm, kustomize and the types of Kubernetes, stays out of every other module.
package deploy
