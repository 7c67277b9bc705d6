package openai

import "strconv"

// Model is a line of /v1/models.
type Model struct {
	ID          string
	Created     int64 // Unix seconds
	OwnedBy     string
	MaxModelLen int // prompt and output tokens, as vLLM has it; 0: not known, nor written
}

// AppendModel writes the answer of /v1/models/{id}.
func AppendModel(dst []byte, m Model) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, m.ID)
	dst = append(dst, `,"object":"model","created":`...)
	dst = strconv.AppendInt(dst, m.Created, 10)
	dst = append(dst, `,"owned_by":`...)
	dst = appendString(dst, m.OwnedBy)
	if m.MaxModelLen > 0 {
		dst = append(dst, `,"max_model_len":`...)
		dst = appendInt(dst, m.MaxModelLen)
	}
	return append(dst, '}')
}

// AppendModels writes the answer of /v1/models.
func AppendModels(dst []byte, models []Model) []byte {
	dst = append(dst, `{"object":"list","data":[`...)
	for i, m := range models {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = AppendModel(dst, m)
	}
	return append(dst, "]}"...)
}
