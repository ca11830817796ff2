//! Choices: everything that a simulated world leaves open, as one list of numbers.
//!
//! In: a written list, or a seed. Out: a number for each question. Always: the same list makes the same world; 0 is the calm
//! answer (the earliest, no fault), and a list that ends goes on with zeros.

/// How many zeros in a row are written one by one.
const ZEROS_MAX: usize = 3;

/// A source of answers, and what it has answered.
#[derive(Debug)]
pub(super) struct Choices {
    written: Vec<u32>,
    chance: Option<Chance>,
    pub(super) taken: Vec<Taken>,
}

/// An answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) choice: u32,
    /// How many there were to choose from.
    pub(super) options: u32,
}

/// SplitMix64 (Steele, Lea and Flood, 2014).
#[derive(Debug)]
struct Chance {
    state: u64,
    /// One question for a fault in so many is answered with one.
    calm: u64,
}

impl Chance {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ (self.state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

impl Choices {
    /// Answers with these, then with zeros.
    pub(super) fn written(written: Vec<u32>) -> Self {
        Self { written, chance: None, taken: Vec::new() }
    }

    /// Answers by chance: the n-th walk of a seed.
    pub(super) fn walk(seed: u64, walk: u64) -> Self {
        let mut chance = Chance { state: seed ^ walk.wrapping_mul(0xd134_2543_de82_ef95), calm: 1 };
        // Some walks are stormy and some calm: a fault that matters may come late in a long one.
        chance.calm = 2 << (chance.next() % 5);
        Self { written: Vec::new(), chance: Some(chance), taken: Vec::new() }
    }

    /// Which of so many comes next.
    pub(super) fn order(&mut self, options: usize) -> usize {
        self.answer(options, |chance, options| chance.next() % options)
    }

    /// Which of so many faults happens; 0 is none.
    pub(super) fn fault(&mut self, options: usize) -> usize {
        self.answer(
            options,
            |chance, options| {
                if chance.next() % chance.calm == 0 { 1 + chance.next() % (options - 1) } else { 0 }
            },
        )
    }

    /// A question with one answer is none and leaves no trace.
    fn answer(&mut self, options: usize, draw: fn(&mut Chance, u64) -> u64) -> usize {
        if options <= 1 {
            return 0;
        }
        let choice = match (self.written.get(self.taken.len()), &mut self.chance) {
            (Some(&written), _) => (written as usize).min(options - 1),
            (None, Some(chance)) => draw(chance, options as u64) as usize,
            (None, None) => 0,
        };
        self.taken.push(Taken { choice: choice as u32, options: options as u32 });
        choice
    }
}

/// The next list in the order of a search through all of them: the last answer that has another option takes it.
pub(super) fn next(mut taken: Vec<Taken>) -> Option<Vec<u32>> {
    while taken.pop_if(|last| last.choice + 1 == last.options).is_some() {}
    taken.last_mut()?.choice += 1;
    Some(taken.into_iter().map(|taken| taken.choice).collect())
}

/// The list without the zeros at its end, which say nothing.
pub(super) fn trimmed(mut choices: Vec<u32>) -> Vec<u32> {
    while choices.pop_if(|last| *last == 0).is_some() {}
    choices
}

/// Writes a list: a digit or small letter an answer, `(40)` for larger ones, `.12.` for so many zeros.
pub(super) fn encode(choices: &[u32]) -> String {
    let mut text = String::new();
    let mut rest = choices;
    while let Some((&first, after)) = rest.split_first() {
        let zeros = rest.iter().take_while(|choice| **choice == 0).count();
        if zeros > ZEROS_MAX {
            text.push_str(&format!(".{zeros}."));
            rest = &rest[zeros..];
            continue;
        }
        match char::from_digit(first, 36) {
            Some(digit) => text.push(digit),
            None => text.push_str(&format!("({first})")),
        }
        rest = after;
    }
    text
}

/// Reads what [`encode`] writes.
pub(super) fn decode(text: &str) -> Option<Vec<u32>> {
    let mut choices = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        rest = &rest[first.len_utf8()..];
        match first {
            '(' => {
                let (number, after) = rest.split_once(')')?;
                choices.push(number.parse().ok()?);
                rest = after;
            }
            '.' => {
                let (zeros, after) = rest.split_once('.')?;
                let zeros: u16 = zeros.parse().ok()?;
                choices.extend(std::iter::repeat_n(0, zeros.into()));
                rest = after;
            }
            digit => choices.push(digit.to_digit(36).filter(|_| !digit.is_uppercase())?),
        }
    }
    Some(choices)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
    use super::*;

    #[test]
    fn a_list_is_written_and_read() {
        for (choices, text) in [
            (vec![], ""),
            (vec![1, 0, 0, 0, 2], "10002"),
            (vec![0, 0, 0, 0, 35, 36], ".4.z(36)"),
            (vec![7, 0, 0, 0, 0, 0, 1], "7.5.1"),
        ] {
            assert_eq!(encode(&choices), text);
            assert_eq!(decode(text).unwrap(), choices);
        }
        for text in ["-", "(", "(x)", ".", ".a.", ".99999.", "A", "1 2", "é"] {
            assert_eq!(decode(text), None, "{text}");
        }
    }

    #[test]
    fn a_search_goes_through_all_lists_once() {
        let mut lists = Vec::new();
        let mut list = Some(Vec::new());
        while let Some(written) = list {
            let mut choices = Choices::written(written);
            let first = choices.order(2);
            // What is asked depends on what was answered.
            let second = choices.fault(if first == 0 { 3 } else { 1 });
            lists.push((first, second));
            list = next(choices.taken);
        }
        assert_eq!(lists, [(0, 0), (0, 1), (0, 2), (1, 0)]);
    }

    #[test]
    fn a_walk_is_the_same_every_time_and_another_one_another() {
        let walk = |seed, walk| {
            let mut choices = Choices::walk(seed, walk);
            (0..50).map(|_| choices.order(10)).collect::<Vec<_>>()
        };
        assert_eq!(walk(1, 1), walk(1, 1));
        assert_ne!(walk(1, 1), walk(1, 2));
        assert_ne!(walk(1, 1), walk(2, 1));
    }
}
