//! The rules of the prompt format that a server can break, by name.

/// A rule that a prompt breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rule {
    /// The begin-of-sentence token stands once, at the start.
    Bos,
    /// With tools, and in the latest turn, reasoning stays.
    ReasoningDropped,
    /// Without tools, reasoning of earlier turns goes; in chat mode there is none.
    ReasoningKept,
    /// Every assistant turn of the history ends in the end token, an interrupted one too.
    EndTokenMissing,
    /// Nothing else ends in it.
    EndTokenExtra,
    /// A tool result is a block of the user turn behind the calls, in the order of the calls.
    ToolResultPlace,
    /// A tool result is its text between its tags.
    ToolResultText,
    /// In chat mode an assistant turn opens with the closing think tag.
    ThinkTagInChat,
    /// In thinking mode the tag depends on whether the turn's reasoning stays.
    ThinkTag,
    /// The effort prefix stands once, before the first message.
    EffortPlace,
    /// There is one exactly where the tier has one.
    Effort,
    /// The tools block stands behind its system message, one JSON line a function.
    ToolsBlock,
    /// So does the response format.
    ResponseFormat,
    /// Tool calls are written in their tags behind the content.
    ToolCalls,
    /// Every message of the conversation is in the prompt, an interrupted answer too.
    TurnMissing,
    /// An answer is in the history as far as the client got it.
    TurnCut,
    /// No message is in the prompt twice, and none that isn't in the conversation.
    TurnExtra,
    /// Consecutive user messages and tool results are one turn, joined by a blank line.
    Merging,
    /// A turn begins with the token of its role.
    RoleToken,
    /// The prompt ends in what opens the assistant's turn.
    GenerationPrompt,
    /// White space is kept as it is.
    WhiteSpace,
    /// The text of a message is kept as it is.
    Content,
    /// The same text has the same ids.
    Tokens,
    /// A difference that no rule explains.
    Unknown,
}

impl Rule {
    /// All rules.
    pub const ALL: [Self; 24] = [
        Self::Bos,
        Self::ReasoningDropped,
        Self::ReasoningKept,
        Self::EndTokenMissing,
        Self::EndTokenExtra,
        Self::ToolResultPlace,
        Self::ToolResultText,
        Self::ThinkTagInChat,
        Self::ThinkTag,
        Self::EffortPlace,
        Self::Effort,
        Self::ToolsBlock,
        Self::ResponseFormat,
        Self::ToolCalls,
        Self::TurnMissing,
        Self::TurnCut,
        Self::TurnExtra,
        Self::Merging,
        Self::RoleToken,
        Self::GenerationPrompt,
        Self::WhiteSpace,
        Self::Content,
        Self::Tokens,
        Self::Unknown,
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        self.row().0
    }

    /// What the format says, in one sentence.
    pub fn says(self) -> &'static str {
        self.row().1
    }

    /// Name and sentence, with the step of spec section 5.
    fn row(self) -> (&'static str, &'static str) {
        match self {
            Self::Bos => ("bos", "the begin-of-sentence token stands once, at the start (step 4)"),
            Self::ReasoningDropped => (
                "reasoning-dropped",
                "reasoning stays where tools are present, and in the latest turn always (steps 2 and 3)",
            ),
            Self::ReasoningKept => (
                "reasoning-kept",
                "without tools, reasoning of earlier turns is dropped; chat mode has none (steps 2 and 3)",
            ),
            Self::EndTokenMissing => {
                ("end-token-missing", "an assistant turn ends in the end token, an interrupted one too (step 4)")
            }
            Self::EndTokenExtra => ("end-token-extra", "only an assistant turn ends in the end token (step 4)"),
            Self::ToolResultPlace => (
                "tool-result-place",
                "a tool result is a block of the user turn behind its call, in the order of the calls (step 1)",
            ),
            Self::ToolResultText => ("tool-result-text", "a tool result is its text between its tags (step 4)"),
            Self::ThinkTagInChat => {
                ("think-tag-in-chat", "in chat mode an assistant turn opens with the closing think tag (step 4)")
            }
            Self::ThinkTag => (
                "think-tag",
                "the opening think tag stands where reasoning stays, the closing one where it is dropped (step 4)",
            ),
            Self::EffortPlace => ("effort-place", "the effort prefix stands once, before the first message (step 4)"),
            Self::Effort => ("effort", "the effort prefix is that of the tier, in thinking mode only (step 4)"),
            Self::ToolsBlock => (
                "tools-block",
                "the tools block stands behind the text of its system message, one JSON line a function (steps 4 and 6)",
            ),
            Self::ResponseFormat => {
                ("response-format", "the response format stands behind the tools of its system message (step 4)")
            }
            Self::ToolCalls => ("tool-calls", "tool calls are written in their tags behind the content (step 5)"),
            Self::TurnMissing => {
                ("turn-missing", "every message is in the prompt, the part of an interrupted answer too (step 4)")
            }
            Self::TurnCut => ("turn-cut", "an answer is in the history as far as the client has it (step 4)"),
            Self::TurnExtra => ("turn-extra", "the prompt has no turn that the conversation has not (step 4)"),
            Self::Merging => {
                ("merging", "user messages and tool results in a row are one turn, joined by a blank line (step 1)")
            }
            Self::RoleToken => ("role-token", "a turn begins with the token of its role (step 4)"),
            Self::GenerationPrompt => {
                ("generation-prompt", "the prompt ends in what opens the assistant's turn (step 4)")
            }
            Self::WhiteSpace => ("white-space", "white space is kept as it is (step 4)"),
            Self::Content => ("content", "the text of a message is kept as it is (step 4)"),
            Self::Tokens => ("tokens", "the same text has the same ids"),
            Self::Unknown => ("unknown", "a difference that no rule explains"),
        }
    }
}
