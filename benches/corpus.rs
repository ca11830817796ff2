//! The corpus: text as agents, tools and people write it, made from nothing.
//!
//! In: a seed. Out: prose, logs, code and JSON, mixed, of any length. Always: the same seed gives the same text on every
//! machine; it is plain ASCII, so that it can be cut anywhere; nothing is repeated on purpose, and `zstd -3` makes a megabyte
//! of it 2.5 to 4 times smaller, as it does with prose and logs.

use std::fmt::Write as _;

/// Where the choices come from: a small generator of random numbers (SplitMix64, public domain).
#[derive(Clone, Debug)]
pub struct Choices(u64);

impl Choices {
    /// Choices that follow from a seed.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: usize) -> usize {
        ((u128::from(self.any()) * end as u128) >> 64) as usize
    }

    /// One of a list.
    pub fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// The most frequent words, most frequent first. The rest of the vocabulary is made of syllables.
const WORDS: &str = "the of and to a in is that it for was on are with as be this from or had by not but what all were when we there can an your which their if do will each how them then many some so these would other into has more two like him see time could no make than first been its who now people my made over did down only way find use may water long little very after words called just where most know get through back much before go good new write our used me man too any day same right look think also around another came come work three word must because does part even place well such here take why things help put years different away again off went old number great tell men say small every found still between name should home big give air line set own under read last never us left end along while might next sound below saw something thought both few those always looked show large often together asked house world going want school important until form food keep children feet land side without boy once animals life enough took sometimes four head above kind began almost live page got earth need far hand high year mother light parts country father let night following picture being study second eyes soon times story boys since white days ever paper hard near sentence better best across during today others however sure means knew try told young miles sun ways thing whole hear example heard several change answer room sea against top turned learn point city play toward five using himself usually build file error test server request value call return function table result thread record version package branch commit release deploy memory index query cache token stream client timeout retry queue batch worker signal config module";

const SYLLABLES: [&str; 48] = [
    "ba", "ber", "can", "cor", "da", "den", "der", "el", "en", "er", "fa", "fin", "gen", "gra", "ha", "in", "ing",
    "ion", "ka", "la", "lem", "li", "lo", "ma", "men", "mi", "na", "ner", "no", "or", "pa", "per", "pla", "ra", "re",
    "ri", "ro", "sa", "sen", "sta", "ta", "ter", "ti", "tor", "tra", "u", "va", "ver",
];

/// How many words there are besides the frequent ones.
const RARE_WORDS: usize = 4_000;

/// How many kinds of log lines there are: a program says the same things about different requests.
const LOG_KINDS: usize = 160;

const LEVELS: [&str; 6] = ["INFO", "INFO", "INFO", "DEBUG", "WARN", "ERROR"];
const TYPES: [&str; 8] = ["u64", "String", "Vec<u8>", "Option<usize>", "bool", "&str", "Result<(), Error>", "Duration"];

/// A writer of text.
struct Writer {
    choices: Choices,
    words: Vec<String>,
    /// What log lines say: where they come from, and their words.
    log_kinds: Vec<String>,
    text: String,
    clock_ms: u64,
}

/// Text of this length in bytes.
fn text(seed: u64, length: usize) -> String {
    let mut choices = Choices::new(seed);
    let mut words: Vec<String> = WORDS.split(' ').map(str::to_owned).collect();
    words.extend((0..RARE_WORDS).map(|_| {
        let syllables = 2 + choices.below(3);
        (0..syllables).map(|_| *choices.one_of(&SYLLABLES)).collect::<String>()
    }));
    let text = String::with_capacity(length + 4096);
    let mut writer = Writer { choices, words, log_kinds: Vec::new(), text, clock_ms: 1_900_000_000_000 };
    writer.log_kinds = (0..LOG_KINDS).map(|_| writer.log_kind()).collect();
    writer.text.clear();
    while writer.text.len() < length {
        match writer.choices.below(10) {
            0..=4 => writer.paragraph(),
            5..=7 => writer.log(),
            8 => writer.code(),
            _ => writer.json(),
        }
    }
    writer.text.truncate(length);
    writer.text
}

impl Writer {
    /// A word, frequent ones more often: its rank is spread as in natural text (Zipf's law).
    fn word(&mut self) -> usize {
        let count = self.words.len() as f64;
        let share = (self.choices.any() >> 11) as f64 / (1_u64 << 53) as f64;
        (count.powf(share) - 1.0) as usize
    }

    fn push_word(&mut self) {
        let word = self.word();
        self.text.push_str(&self.words[word]);
    }

    fn sentence(&mut self) {
        let begin = self.text.len();
        let length = 5 + self.choices.below(18);
        for position in 0..length {
            if position > 0 {
                self.text.push_str(if self.choices.below(12) == 0 { ", " } else { " " });
            }
            self.push_word();
            if self.choices.below(40) == 0 {
                let number = self.choices.below(10_000);
                let _ = write!(self.text, " {number}");
            }
        }
        self.text[begin..=begin].make_ascii_uppercase();
        self.text.push_str(if self.choices.below(8) == 0 { "?\n" } else { ". " });
    }

    fn paragraph(&mut self) {
        for _ in 0..3 + self.choices.below(5) {
            self.sentence();
        }
        self.text.push_str("\n\n");
    }

    /// Makes a kind of log line.
    fn log_kind(&mut self) -> String {
        self.text.clear();
        let level = *self.choices.one_of(&LEVELS);
        self.text.push_str(level);
        self.text.push(' ');
        self.push_word();
        self.text.push_str("::");
        self.push_word();
        self.text.push(':');
        for _ in 0..3 + self.choices.below(6) {
            self.text.push(' ');
            self.push_word();
        }
        self.text.clone()
    }

    fn log(&mut self) {
        for _ in 0..2 + self.choices.below(6) {
            self.clock_ms += self.choices.any() % 4_000;
            let (seconds, ms) = (self.clock_ms / 1_000, self.clock_ms % 1_000);
            let (hour, minute, second) = (seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
            let kind = self.choices.one_of(&self.log_kinds);
            let day = 1 + seconds / 86_400 % 28;
            let _ = write!(self.text, "2030-03-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z {kind} ");
            self.push_word();
            let (id, took) = (self.choices.any() as u32, self.choices.below(20_000));
            let _ = writeln!(self.text, " request={id:08x} took_us={took}");
        }
    }

    fn code(&mut self) {
        let name = self.word();
        let kind = *self.choices.one_of(&TYPES);
        let _ = writeln!(self.text, "fn {}(input: &str) -> {kind} {{", self.words[name]);
        for _ in 0..2 + self.choices.below(6) {
            let (into, from, by) = (self.word(), self.word(), self.word());
            let number = self.choices.below(1_000);
            let _ = writeln!(
                self.text,
                "    let {} = self.{}.{}({number});",
                self.words[into], self.words[from], self.words[by]
            );
        }
        self.text.push_str("}\n\n");
    }

    fn json(&mut self) {
        self.text.push('{');
        for field in 0..3 + self.choices.below(5) {
            if field > 0 {
                self.text.push_str(", ");
            }
            let (name, value) = (self.word(), self.word());
            let number = self.choices.any() % 1_000_000;
            let _ = match number % 2 {
                0 => write!(self.text, "\"{}\": {number}", self.words[name]),
                _ => write!(self.text, "\"{}\": \"{}\"", self.words[name], self.words[value]),
            };
        }
        self.text.push_str("}\n");
    }
}

/// Text that is made once and cut into pieces.
pub struct Corpus(String);

impl Corpus {
    /// A corpus of this length in bytes.
    pub fn new(seed: u64, length: usize) -> Self {
        Self(text(seed, length))
    }

    /// A piece of this length, from a place that follows from `choice`.
    pub fn cut(&self, choice: u64, length: usize) -> &str {
        let from = (choice % (self.0.len() - length) as u64) as usize;
        &self.0[from..from + length]
    }

    /// The first bytes.
    pub fn head(&self, length: usize) -> &[u8] {
        &self.0.as_bytes()[..length]
    }
}
