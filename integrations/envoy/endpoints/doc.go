// Package endpoints owns the list of workers of a picker: those of flags and of a file, with names that a DNS server
// resolves, such as that of a headless service, as one worker for each address. It probes no worker and chooses none.
//
// Envoy takes addresses, not names, so the gateway must know its workers by address. One goroutine runs Run.
//
//	list, err := endpoints.Read(file)
//	w := endpoints.Watcher{Given: list, Apply: g.SetWorkers}
//	err = w.Run(ctx)
package endpoints
