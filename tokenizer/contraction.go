package tokenizer

// contraction returns the length of the English contraction that text begins with ('s 't 'm 'd
// 're 've 'll, lower case), or 0.
func contraction(text string) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	switch text[1] {
	case 's', 't', 'm', 'd':
		return 2
	case 'r', 'v':
		if len(text) > 2 && text[2] == 'e' {
			return 3
		}
	case 'l':
		if len(text) > 2 && text[2] == 'l' {
			return 3
		}
	}
	return 0
}

// contractionFold is contraction for letters of any case. The long s (U+017F) counts as an s, as
// in Unicode's case folding.
func contractionFold(text string) int {
	if len(text) < 2 || text[0] != '\'' {
		return 0
	}
	var lower [3]byte
	n := copy(lower[:], text)
	for i := 1; i < n; i++ {
		if 'A' <= lower[i] && lower[i] <= 'Z' {
			lower[i] += 'a' - 'A'
		}
	}
	if n == 3 && lower[1] == 0xC5 && lower[2] == 0xBF {
		return 3
	}
	return contraction(string(lower[:n]))
}
