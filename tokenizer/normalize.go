package tokenizer

import "golang.org/x/text/unicode/norm"

// normalizerOf tells whether text is brought to normalization form C.
func normalizerOf(p *partJSON) (nfc bool, err error) {
	switch {
	case p == nil, p.Type == "Sequence" && len(p.Normalizers) == 0:
		return false, nil
	case p.Type == "Sequence" && len(p.Normalizers) == 1:
		return normalizerOf(&p.Normalizers[0])
	case p.Type == "NFC":
		return true, nil
	}
	return false, unsupported("normalizer %q; supported are none and NFC", p.Type)
}

// normalizeNFC brings text to normalization form C (Unicode Standard Annex 15).
// Bytes that are no UTF-8 stay as they are. Text of runes below U+0300 only is in
// the form already; it costs one walk and no allocation.
func normalizeNFC(text string) string {
	if belowCombining(text) || norm.NFC.IsNormalString(text) {
		return text
	}
	return norm.NFC.String(text)
}

// belowCombining tells whether text has no rune from U+0300 on, where combining
// marks begin: UTF-8 leads those with 0xCC or more.
func belowCombining(text string) bool {
	for i := range len(text) {
		if text[i] >= 0xCC {
			return false
		}
	}
	return true
}
