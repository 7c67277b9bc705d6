// Package web owns the parts shared by the HTTP servers of a node and of a fleet: the count of
// open requests and their shutdown, write deadlines, a page with its files, and net/http's log.
// It knows no route, no key and no error of the API.
//
//	door := web.NewDoor(0)
//	if door.Enter() == nil {
//		defer door.Leave()
//	}
//	err := door.Shutdown(ctx, &httpServer, errors.New("shutting down"), nil)
package web
