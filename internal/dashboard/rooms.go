package dashboard

import "slices"

// roomPages are those of agents, the playground, knowledge, channels and conversations.
func (*Dashboard) roomPages() []page {
	return slices.Concat(agentPages(), []page{playgroundPage()}, knowledgePages(), channelPages(), conversationPages())
}
