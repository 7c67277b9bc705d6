// Package staticcheck pins the version of staticcheck that .ci/run checks the project
// with, as a module of its own, so that the project's go.mod does not name it.
package staticcheck
