//go:build !unix

package server

import "time"

// processorTime returns 0: it is unknown on this system.
func processorTime() time.Duration { return 0 }
