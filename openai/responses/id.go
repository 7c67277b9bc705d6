package responses

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// Path is the path of the API.
const Path = "/v1/responses"

// The id of a response is "resp_" and 32 hexadecimal digits: 16 random ones and 16 of the worker that has it, so that a proxy
// finds the worker without a memory of its own. The ids of its items have the same digits after "msg_", "fc_" or "rs_", and
// then the number of the item.
const (
	idPrefix     = "resp_"
	randomDigits = 16
	idDigits     = 2 * randomDigits
)

// digitsOf returns the digits of the response with this random part.
func digitsOf(random string, worker uint64) string { return fmt.Sprintf("%s%016x", random, worker) }

// ResponseOf returns the id of the response that id, of a response or of an item, belongs to; "" if id is none of this
// package's ids.
func ResponseOf(id string) string {
	_, digits, _ := strings.Cut(id, "_")
	if len(digits) < idDigits {
		return ""
	}
	if _, err := hex.DecodeString(digits[:idDigits]); err != nil {
		return ""
	}
	return idPrefix + digits[:idDigits]
}

// WorkerOf returns the worker that has the response with this id, 0 if the id does not say.
func WorkerOf(id string) uint64 {
	digits, ok := strings.CutPrefix(ResponseOf(id), idPrefix)
	if !ok {
		return 0
	}
	worker, _ := strconv.ParseUint(digits[randomDigits:], 16, 64)
	return worker
}
