package openai

import "github.com/coppice-llm/coppice/internal/jsontext"

// Model is an element of /v1/models. For other servers only the fields with a tag are decoded.
type Model struct {
	ID      string `json:"id"`
	Created int64  `json:"-"` // Unix seconds
	OwnedBy string `json:"-"`
	// MaxModelLen is the most prompt plus output tokens, as in vLLM; 0: unknown, not written.
	MaxModelLen int    `json:"max_model_len"`
	Parent      string `json:"parent"` // the base model of an adapter, in vLLM; not written
}

// Models is the answer of /v1/models.
type Models struct {
	Data []Model `json:"data"`
}

// AppendModel writes the answer of /v1/models/{id}.
func AppendModel(dst []byte, m Model) []byte {
	dst = append(dst, `{"id":`...)
	dst = jsontext.AppendString(dst, m.ID)
	dst = append(dst, `,"object":"model","created":`...)
	dst = jsontext.AppendInt(dst, m.Created)
	dst = append(dst, `,"owned_by":`...)
	dst = jsontext.AppendString(dst, m.OwnedBy)
	if m.MaxModelLen > 0 {
		dst = append(dst, `,"max_model_len":`...)
		dst = jsontext.AppendInt(dst, m.MaxModelLen)
	}
	return append(dst, '}')
}

// AppendModels writes the answer of /v1/models.
func AppendModels(dst []byte, models []Model) []byte {
	dst = jsontext.AppendList(append(dst, `{"object":"list","data":`...), models, AppendModel)
	return append(dst, '}')
}
