package tokenizer

// normalizerOf tells whether text is brought to normalization form C.
func normalizerOf(p *partJSON) (nfc bool, err error) {
	switch {
	case p == nil, p.Type == "Sequence" && len(p.Normalizers) == 0:
		return false, nil
	case p.Type == "Sequence" && len(p.Normalizers) == 1:
		return normalizerOf(&p.Normalizers[0])
	}
	return false, unsupported("normalizer %q; supported is none", p.Type)
}

// normalizeNFC is never called while normalizerOf refuses NFC.
func normalizeNFC(text string) string { return text }
