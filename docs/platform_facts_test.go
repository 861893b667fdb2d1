package docs

import "testing"

// platformFacts are facts about real platforms that their own pages leave out, seen in production traffic.
var platformFacts = []row{
	{
		"Marketplace A: `content.shop_id` is the receiver's shop; a message is the shop's own only by `from_shop_id`; buyers may have shops.",
		"marketa.TestExtractPushed",
	},
	{
		"Marketplace A: pushes without `from_shop_id` don't say who wrote. The shop's own are known by our message's id, or by a sender to " +
			"whom customers write.",
		"marketa.TestExtract inbox.TestUnsureMessages inbox.TestBusinessesAreLearned",
	},
	{
		"Marketplace A: `auto_reply` and `offwork_autoreply` are nobody's; `blocked` and `censored_blacklist` were never seen by the " +
			"receiver.",
		"marketa.TestExtractPushed",
	},
	{
		"Marketplace A: what people write in the seller's app is only in the list of messages, where `source` is neither `openapi` nor " +
			"`server`.",
		"marketa.TestReadThread worker.TestPeopleAtMarketA",
	},
	{
		"Marketplace A: the button for a person is a text; affiliates are no customers; the platform's own bot reports by a notification.",
		"marketa.TestExtractPushed",
	},
	{
		"Marketplace A: 600 characters; codes of the five messages, of silent buyers, of blocks, of refused contents.",
		"marketa.TestContract",
	},
	{
		"Local chat: -213, -217, -227, -244 are about the customer; -230, -232 are the window; -234 is the night.",
		"localchat.TestContract localchat.TestUntilMorning",
	},
	{
		"Local chat: codes of the account and the application stop the channel, codes of quotas and wallets refuse the message.",
		"localchat.TestContract",
	},
	{"Local chat: only messages of a person have an `admin_id`.", "localchat.TestExtract"},
	{
		"Local chat and marketplace A sign deliveries with another secret than calls.",
		"localchat.TestContract localchat.TestRefreshWithTheApplicationsSecret marketa.TestContract",
	},
	{
		"Marketplace A wants an application of each seller; the key of an official account may be its own.",
		"webhook.TestDeliveriesOfAnOwnApplication webhook.TestOwnApplicationsAmongOthers webhook.TestOwnApplicationWithoutAStore " +
			"marketa.TestCallsOfAnOwnApplication",
	},
	{"The photo service's deliveries are signed by the application or by its own login.", "social.TestContract"},
	{
		"Messenger and photo DM: after 24 h only people may write, with the tag `HUMAN_AGENT`, for 7 days.",
		"social.TestSendMarks worker.TestPeopleMayWriteLonger api.TestSendAsHumanIsRefused",
	},
	{
		"Messenger and photo DM: an echo repeats the sender's `metadata`, which tells our messages from a person's even if the answer to the " +
			"send was lost.",
		"social.TestSendMarks social.TestExtractDirect",
	},
	{
		"Messenger and photo DM: automatic replies of the business have no mark; what people write in the platform's inbox has its `app_id`.",
		"inbox.TestAutomaticReplies social.TestExtractDirect",
	},
	{"Elsewhere what a person wrote is marked, however quick they were.", "inbox.TestMarkedEchoesAreBelieved"},
	{"An echo may come minutes late.", "inbox.TestEchoesAnswerWhatIsOlder"},
	{"Chat app: 131026 may come when the customer has written again.", "inbox.TestLateBlocks"},
	{
		"An echo may be the only proof that a message arrived, and platforms change white space and formatting in it.",
		"inbox.TestEchoesOfOurParts",
	},
	{
		"Chat app: a code comes with the answer, with a later status, or both; only the code counts.",
		"social.TestContract social.TestExtractFailedSends",
	},
	{
		"Chat app: 131000 says no more than that something went wrong, and is worth three tries.",
		"social.TestUnexplainedErrors worker.TestUnexplainedErrors tests.TestUnexplainedFailure",
	},
	{
		"Chat app: the status of a failed send may be here before the answer to the send, or instead of it; it repeats " +
			"`biz_opaque_callback_data`.",
		"social.TestExtractLateErrors inbox.TestLateErrors",
	},
	{
		"Chat app: codes of account, payment and registration come with statuses and without a message; they are the channel's.",
		"social.TestExtractLateErrors inbox.TestAccessRefused store.TestRefuseReported",
	},
	{
		"Photo DM: a token of its own login lasts 60 days and is exchanged for itself while it is good and a day old.",
		"social.TestContract worker.TestTokensAreRenewedInTheBackground worker.TestARefusedRenewal",
	},
	{
		"Local chat and marketplaces: an authorization ends with its refresh token, in weeks or months, and nobody knows the end of a pasted " +
			"token.",
		"worker.TestTokensAreRenewedInTheBackground",
	},
	{
		"Local chat: in some set-ups the timestamp of a delivery is only in the header `X-ZEvent-Timestamp`.",
		"verify.TestLocalChatTimestampInAHeader",
	},
	{
		"Local chat: at night it takes no messages until 06:00.",
		"localchat.TestClosedAtNight worker.TestAPlatformThatIsClosedIsWaitedFor",
	},
	{
		"Marketplace A: an answer has four parts at most, and five messages in a row go unanswered.",
		"messaging.TestLongestReply worker.TestUnansweredMessages inbox.TestUnanswered",
	},
	{
		"Chat app: about one message in 6 s to one customer; codes of account and number stop the channel; codes of contents and limits " +
			"aren't tried again.",
		"social.TestPairRate worker.TestAPairWaitsAlone social.TestContract",
	},
	{
		"Every platform limits how fast a channel sends, and a 429 is for the whole channel.",
		"inbox.TestPaceOfAChannel inbox.TestHolds worker.TestWorkersKeepThePace tests.TestWorkersKeepThePlatformsPace",
	},
	{"Social platform: a limit of calls says in a header of its own, in minutes, for how long.", "social.TestLimitOfCalls"},
	{
		"Chat app: templates belong to the business account, which the number's health names; variables have numbers or names.",
		"social.TestTemplates social.TestSendTemplate",
	},
	{
		"Chat app: a paused, disabled, missing template, or other variables, have codes of their own; texts after the window are refused.",
		"social.TestContract worker.TestTemplates",
	},
	{
		"Bot: a private chat may have topics, and an answer without one goes to the general topic.",
		"bot.TestTopics bot.TestExtract",
	},
	{
		"Social platform, chat app and marketplaces: a colleague's picture comes as an echo, with its file.",
		"social.TestExtractDirect social.TestExtractChatApp marketa.TestExtractPushed marketb.TestExtract inbox.TestColleaguesPicture",
	},
	{
		"Chat app: customers who hide their number are named by a user id alone; earlier messages and contacts had both.",
		"social.TestExtractChatApp inbox.TestCustomerWithTwoIDs inbox.TestAliasesOfOthers",
	},
	{
		"Bot, social platform and chat app: customers change what they have written, also while it is being answered; a link's preview is " +
			"such a change.",
		"bot.TestExtract social.TestExtractDirect social.TestExtractChatApp inbox.TestEditedMessage inbox.TestEditedByOthers " +
			"inbox.TestEditedUnderADraft",
	},
	{
		"Bot: an album is a message for each picture, of which one has the caption; only that one is answered.",
		"bot.TestExtract",
	},
	{
		"Chat app: what a customer filled into a form is JSON in a string; an order may come with a note.",
		"social.TestExtractChatApp",
	},
	{
		"Media: links end, and whoever knows one needs no token; ids get a new link, the bot platform's contains the token, the chat app's " +
			"wants it.",
		"media.TestLinksExpire media.TestFilesAreStored tests.TestFiles",
	},
	{"Messenger and photo DM: mentions in stories must not be stored.", "social.TestExtractFiles"},
	{"Marketplace B: `auto_reply` marks automatic replies; the text of a video is a file's name.", "marketb.TestExtract"},
	{"Marketplace B: a message's id is unique only within its session.", "marketb.TestMessageIDs marketb.TestExtract"},
	{
		"Messages are taken back (`is_deleted`, `revoke`, `status` 1), and copies of them must be deleted.",
		"social.TestExtractDirect social.TestExtractChatApp marketb.TestExtract inbox.TestWithdrawnMessage tests.TestWithdrawnMessages",
	},
	{
		"Local chat: `user_withdraw` asks for the deletion of a customer's data.",
		"localchat.TestExtract inbox.TestErasureWanted tests.TestErasureThroughThePlatform",
	},
	{
		"Local chat: `user_withdraw` comes again for an hour, also after the customer has come back.",
		"inbox.TestErasureWantedOfACustomerWhoCameBack inbox.TestErasureWantedLate",
	},
	{"Messenger: a page may be restricted for some time (10/1893063).", "social.TestContract"},
}

// TestPlatformFacts: every fact is shown by tests.
func TestPlatformFacts(t *testing.T) {
	t.Parallel()
	requireShown(t, platformFacts)
}
