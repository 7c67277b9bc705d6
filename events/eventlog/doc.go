// Package eventlog owns the cache events of one node: it numbers them in batches without gaps, keeps the last ones, and
// lets readers wait for more. It never sends them anywhere: a publisher of package events reads them. One goroutine
// appends; all else may be called from any.
//
//	log, err := eventlog.New(eventlog.Config{}, dump)
//	log.Append(changes)
//	batches, err := log.Read(ctx, 0) // from batch 0 on
package eventlog
