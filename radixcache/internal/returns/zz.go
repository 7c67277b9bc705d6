package returns

import (
	"os"
	"strconv"
)

func zz(name string, def float64) float64 {
	if v, err := strconv.ParseFloat(os.Getenv("ZZ_"+name), 64); err == nil {
		return v
	}
	return def
}

var (
	priorSeen = zz("PSEEN", 4)
	fade      = zz("FADE", 0.4)
	broadSeen = zz("SEEN", 8)
)
