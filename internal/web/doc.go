// Package web owns what the HTTP faces of a node and of a fleet share: the door that requests
// come in by until it is shut, deadlines of writing, a page with its files, and net/http's log.
// It knows no route, no key and no error of the API.
//
//	door := web.NewDoor(0)
//	if door.Enter() == nil {
//		defer door.Leave()
//	}
//	err := door.Shutdown(ctx, &httpServer, errors.New("shutting down"), nil)
package web
