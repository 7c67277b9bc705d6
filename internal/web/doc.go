// Package web owns the parts shared by the HTTP servers of a node and of a fleet: the count of
// open requests and their shutdown, their bodies, write deadlines, a page with its files, and
// net/http's log. It knows no route and no key.
//
//	door := web.NewDoor(0)
//	if door.Enter() == nil {
//		defer door.Leave()
//	}
//	err := door.Shutdown(ctx, &httpServer, errors.New("shutting down"), nil)
package web
