//! The words of the grammar.

/// First words of names.
pub const ADJECTIVES: [&str; 28] = [
    "amber", "quiet", "rapid", "hollow", "bright", "frozen", "golden", "silent", "crimson", "gentle", "ancient",
    "narrow", "lucky", "broken", "distant", "humble", "velvet", "stormy", "copper", "misty", "proud", "tiny", "wild",
    "lonely", "polar", "iron", "royal", "sunny",
];
/// Last words of names.
pub const NOUNS: [&str; 36] = [
    "falcon", "harbor", "garden", "lantern", "river", "castle", "engine", "mirror", "bridge", "forest", "anchor",
    "tower", "meadow", "rocket", "temple", "valley", "wagon", "island", "compass", "market", "tunnel", "library",
    "kettle", "piano", "saddle", "planet", "glacier", "orchard", "canyon", "beacon", "museum", "canal", "tiger",
    "raven", "otter", "badger",
];
/// Owners of things.
pub const PEOPLE: [&str; 20] = [
    "alice", "bruno", "carla", "dmitri", "elena", "felix", "greta", "hugo", "irene", "jonas", "karin", "lukas",
    "maria", "nadia", "oscar", "petra", "quentin", "rosa", "stefan", "tanya",
];
/// Where things are.
pub const CITIES: [&str; 20] = [
    "lisbon", "oslo", "cairo", "lima", "kyoto", "paris", "delhi", "quito", "dublin", "vienna", "athens", "prague",
    "seoul", "havana", "tunis", "riga", "accra", "boston", "sydney", "milan",
];
/// Letters of codes.
pub const LETTERS: [char; 20] =
    ['A', 'B', 'C', 'D', 'E', 'F', 'G', 'H', 'J', 'K', 'L', 'M', 'N', 'P', 'R', 'T', 'V', 'W', 'X', 'Z'];
/// What log lines report.
pub const SIGNALS: [&str; 6] = ["red", "green", "blue", "white", "black", "yellow"];
/// Topics of small talk, each with its nouns.
pub const TOPICS: [(&str, [&str; 6]); 6] = [
    ("music", ["song", "drum", "violin", "choir", "melody", "singer"]),
    ("food", ["bread", "soup", "cheese", "apple", "pepper", "cook"]),
    ("weather", ["rain", "cloud", "wind", "snow", "thunder", "fog"]),
    ("sport", ["ball", "goal", "team", "race", "coach", "match"]),
    ("travel", ["train", "ticket", "hotel", "suitcase", "border", "ferry"]),
    ("work", ["office", "desk", "meeting", "report", "salary", "boss"]),
];
/// Verbs of small talk.
pub const VERBS: [&str; 10] =
    ["follows", "needs", "likes", "leaves", "finds", "keeps", "moves", "meets", "misses", "changes"];
/// Qualities in small talk.
pub const QUALITIES: [&str; 10] = ["old", "new", "big", "small", "slow", "fast", "good", "bad", "plain", "odd"];
/// Names of made tools: a look-up and a writer of files are always among them.
pub const TOOLS: [&str; 5] = ["lookup", "write_file", "get_time", "send_note", "count_words"];
