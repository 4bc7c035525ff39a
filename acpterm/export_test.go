package acpterm

// Learned returns what a connection has shown of its client.
func (c *Client) Learned() Profile {
	p := c.profile(Profile{})
	p.CompleteAtExit = c.completeAtExit()
	return p
}
