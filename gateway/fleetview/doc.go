// Package fleetview owns the page of a router about its fleet, with the latest routed requests
// and sums for each worker. It never routes and never asks a worker.
//
//	rec := fleetview.NewRecorder()
//	rec.Add(fleetview.Routed{Worker: "a", PromptTokens: 600, PredictedTokens: 512})
//	mux.Handle("/", fleetview.Page())
package fleetview
