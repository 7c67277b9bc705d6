package openai

import (
	"encoding/binary"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// Namespace returns where requests of a tenant with a cache_salt look for prefixes. No two
// pairs of tenant and salt have the same one, except that a salt which begins with
// "shared:" has one for all tenants. Without both it is the public one.
func Namespace(tenant, salt string) kv.Namespace {
	switch {
	case strings.HasPrefix(salt, "shared:"):
		return kv.Namespace{Salt: salt} // the others begin with "t"
	case tenant == "" && salt == "":
		return kv.Namespace{}
	}
	b := append(make([]byte, 0, 12+len(tenant)+len(salt)), 't')
	b = binary.AppendUvarint(b, uint64(len(tenant))) // else "ab", "c" were "a", "bc"
	b = append(append(b, tenant...), salt...)
	return kv.Namespace{Salt: string(b)}
}
