package conversation

import (
	"encoding/binary"
	"strings"

	"github.com/coppice-llm/coppice/kv"
)

// Namespace returns the cache namespace of a tenant with a cache_salt. Different pairs of tenant
// and salt have different namespaces, except that a salt beginning with "shared:" has one
// namespace for all tenants. Without tenant and salt it is the public namespace.
func Namespace(tenant, salt string) kv.Namespace {
	switch {
	case strings.HasPrefix(salt, "shared:"):
		return kv.Namespace{Salt: salt} // all other salts begin with "t"
	case tenant == "" && salt == "":
		return kv.Namespace{}
	}
	b := append(make([]byte, 0, 12+len(tenant)+len(salt)), 't')
	b = binary.AppendUvarint(b, uint64(len(tenant))) // the length separates "ab", "c" from "a", "bc"
	b = append(append(b, tenant...), salt...)
	return kv.Namespace{Salt: string(b)}
}
