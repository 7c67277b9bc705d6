package server

import (
	"fmt"
	"strings"
)

// wrongEmbeddings returns the hostile requests to /v1/embeddings.
func wrongEmbeddings() (all []hostileRequest) {
	for _, field := range []string{"input", "model", "encoding_format", "dimensions", "normalize", "user", "cache_salt", "priority", "coppice"} {
		for _, w := range wrongs {
			body := fmt.Sprintf(`{"input":"x",%q:%s}`, field, w.value)
			if field == "input" {
				body = fmt.Sprintf(`{"input":%s}`, w.value)
			}
			all = append(all, hostileRequest{name: "embeddings: " + field + " is " + w.name, body: body})
		}
	}
	for name, fields := range (orderedMap{
		{"nothing", ``}, {"a text", `"input":"x"`}, {"an empty text", `"input":""`}, {"an empty list", `"input":[]`}, {"an empty text among others", `"input":["x",""]`}, {"ids and text", `"input":[1,"x"]`},
		{"ids out of range", `"input":[5,99999999]`}, {"lists that are empty", `"input":[[],[]]`}, {"many ids", `"input":[` + manyOnes + `]`}, {"one id more than positions", `"input":[` + strings.Repeat("1,", 512) + `1]`},
		{"as many ids as positions", `"input":[` + strings.Repeat("1,", 511) + `1]`}, {"as many texts as may be", `"input":[` + repeatIn("", `"x",`, 2047, `"x"]`)}, {"a text more", `"input":[` + repeatIn("", `"x",`, 2048, `"x"]`)},
		{"a long text", `"input":"` + longText + `"`}, {"one long word", `"input":"` + strings.Repeat("a", 1<<18) + `"`}, {"a long text after others", `"input":["x","y","` + longText + `"]`}, {"long texts", `"input":[` + repeatIn("", `"`+longText[:900]+`",`, 127, `"x"]`)},
		{"more dimensions than there are", `"input":"x","dimensions":17`}, {"all dimensions", `"input":"x","dimensions":16`}, {"a million dimensions", `"input":"x","dimensions":1048577`}, {"another encoding", `"input":"x","encoding_format":"ubinary"`},
		{"a stream", `"input":"x","stream":true`}, {"a deadline at once", `"input":["x","y"],"coppice":{"timeout":1e-9}`}, {"beyond all others", `"input":"x","priority":2147483648`}, {"a long salt", `"input":"x","cache_salt":"` + longText + `"`},
		{"fields of a completion", `"input":"x","max_tokens":5,"logprobs":2`}, {"another model", `"input":"x","model":"text-embedding-3-small"`},
	}.each) {
		all = append(all, hostileRequest{name: "embeddings: " + name, body: "{" + fields + "}"})
	}
	for i := range all {
		all[i].path = "/v1/embeddings"
	}
	return all
}
