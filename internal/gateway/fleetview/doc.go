// Package fleetview owns what a router shows of its fleet to people: the page, the
// requests that were routed lately, and sums for each worker. It routes nothing and asks
// no worker.
//
//	rec := fleetview.NewRecorder()
//	rec.Add(fleetview.Routed{Worker: "a", PromptTokens: 600, PredictedTokens: 512})
//	mux.Handle("/", fleetview.Page())
package fleetview
