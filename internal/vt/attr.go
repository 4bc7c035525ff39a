package vt

// An attr is how a cell looks: the colours of text and background, whether they are
// swapped, and the style of the text. The zero value is the default.
type attr uint32

// Both colours have 13 bits: 0 is the default, then come the 256 of the palette,
// and then all others, with four bits for each of red, green and blue.
const (
	attrFg      attr = 1<<13 - 1
	attrBg      attr = attrFg << 13
	attrReverse attr = 1 << 26

	attrBold      attr = 1 << 27
	attrFaint     attr = 1 << 28
	attrItalic    attr = 1 << 29
	attrUnderline attr = 1 << 30
	attrStrike    attr = 1 << 31

	palette = 1
	rgb     = palette + 256
	ink     = 1<<13 - 1 // the default colour of text, as a background
)

func (a attr) withFg(c attr) attr { return a&^attrFg | c }
func (a attr) withBg(c attr) attr { return a&^attrBg | c<<13 }

// background returns what an erased cell has of a.
func (a attr) background() attr { return a & attrBg }

// paper returns the colour that the eye sees behind the text.
func (a attr) paper() attr {
	fg, bg := a&attrFg, a&attrBg>>13
	switch {
	case a&attrReverse == 0:
		return bg
	case fg == 0:
		return ink
	}
	return fg
}

// styles are what SGR 0 to 9 switch on, and 20 more off. Nobody blinks or hides here.
var styles = [10]attr{1: attrBold, 2: attrFaint, 3: attrItalic, 4: attrUnderline, 7: attrReverse, 9: attrStrike}

// sgr applies SELECT GRAPHIC RENDITION.
func (a attr) sgr(p *params) attr {
	for i := 0; i < p.n; i++ {
		switch v := attr(p.v[i]); {
		case p.isSub(i): // of something unknown
		case v == 0:
			a = 0
		case v == 4 && i+1 < p.n && p.isSub(i+1) && p.v[i+1] == 0:
			a &^= attrUnderline
		case v == 21: // twice
			a |= attrUnderline
		case v < 10:
			a |= styles[v]
		case v == 22:
			a &^= attrBold | attrFaint
		case 23 <= v && v <= 29:
			a &^= styles[v-20]
		case 30 <= v && v <= 37:
			a = a.withFg(palette + v - 30)
		case 90 <= v && v <= 97:
			a = a.withFg(palette + v - 90 + 8)
		case 40 <= v && v <= 47:
			a = a.withBg(palette + v - 40)
		case 100 <= v && v <= 107:
			a = a.withBg(palette + v - 100 + 8)
		case v == 39:
			a = a.withFg(0)
		case v == 49:
			a = a.withBg(0)
		case v == 38 || v == 48 || v == 58:
			c, n := p.colour(i + 1)
			i += n
			switch {
			case n == 0 || v == 58: // of an underline
			case v == 38:
				a = a.withFg(c)
			default:
				a = a.withBg(c)
			}
		}
	}
	return a
}

// colour returns the colour at parameter i, and how many parameters it takes; 0
// if it is none. It is 5;N or 2;R;G;B, or the same with colons, where 2 may have
// a colour space: 2::R:G:B.
func (p *params) colour(i int) (c attr, n int) {
	if i >= p.n {
		return 0, 0
	}
	end := p.n
	if p.isSub(i) {
		for end = i; end < p.n && p.isSub(end); end++ {
		}
	}
	switch v := p.v[i:end]; {
	case v[0] == 5 && len(v) >= 2:
		c, n = attr(palette+v[1]&0xff), 2
	case v[0] == 2 && p.isSub(i) && len(v) >= 5:
		c, n = mix(v[2:]), 5
	case v[0] == 2 && len(v) >= 4:
		c, n = mix(v[1:]), 4
	}
	if p.isSub(i) {
		n = end - i
	}
	return c, n
}

func mix(v []int32) attr {
	return rgb + attr(v[0]&0xf0<<4|v[1]&0xf0|v[2]&0xf0>>4)
}
