package fakeconn

// Feed puts a line on the wire that a side has not sent.
func (c *Client) Feed(from Side, line string) {
	c.filter.to[from.other()].Write([]byte(line + "\n"))
}
