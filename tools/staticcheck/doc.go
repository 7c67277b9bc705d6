// Package staticcheck pins the version of staticcheck that .ci/run uses. It is a separate module, so
// that the go.mod of the project does not require staticcheck.
package staticcheck
