//! The arguments of a command, borrowed from the bytes they arrived in.

/// The place of an argument in the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: usize,
    pub(crate) len: usize,
}

/// A command: its name, then its arguments. Two slices, so it is cheap to copy.
#[derive(Clone, Copy)]
pub struct Args<'a> {
    bytes: &'a [u8],
    spans: &'a [Span],
}

impl<'a> Args<'a> {
    /// The command whose `spans` were found in `bytes`.
    pub(crate) fn new(bytes: &'a [u8], spans: &'a [Span]) -> Args<'a> {
        Args { bytes, spans }
    }

    /// Number of arguments, including the name.
    pub fn len(self) -> usize {
        self.spans.len()
    }

    /// Bytes of all of them together.
    pub fn bytes(self) -> usize {
        self.spans.iter().map(|span| span.len).sum()
    }

    /// Whether there is not even a name; never so for a parsed command.
    pub fn is_empty(self) -> bool {
        self.spans.is_empty()
    }

    /// The command's name as the client wrote it.
    pub fn name(self) -> &'a [u8] {
        self.at(0)
    }

    /// The argument at `index`, where the name is at 0; empty past the end.
    pub fn at(self, index: usize) -> &'a [u8] {
        self.get(index).unwrap_or_default()
    }

    /// The argument at `index`, where the name is at 0.
    pub fn get(self, index: usize) -> Option<&'a [u8]> {
        let span = self.spans.get(index)?;
        self.bytes.get(span.start..span.start + span.len)
    }

    /// Whether the argument at `index` equals `word`, an ASCII word, ignoring case.
    pub fn is(self, index: usize, word: &str) -> bool {
        self.get(index).is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    }

    /// The arguments from `first` on.
    pub fn from(self, first: usize) -> Args<'a> {
        Args { bytes: self.bytes, spans: self.spans.get(first..).unwrap_or_default() }
    }

    /// All arguments, the name first.
    pub fn iter(self) -> ArgsIter<'a> {
        ArgsIter { args: self, next: 0 }
    }
}

impl<'a> IntoIterator for Args<'a> {
    type Item = &'a [u8];
    type IntoIter = ArgsIter<'a>;

    fn into_iter(self) -> ArgsIter<'a> {
        self.iter()
    }
}

/// Iterates over [`Args`].
#[derive(Clone)]
pub struct ArgsIter<'a> {
    args: Args<'a>,
    next: usize,
}

impl<'a> Iterator for ArgsIter<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let arg = self.args.get(self.next)?;
        self.next += 1;
        Some(arg)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let left = self.args.len() - self.next;
        (left, Some(left))
    }
}

impl ExactSizeIterator for ArgsIter<'_> {}

impl std::fmt::Debug for Args<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.iter().map(String::from_utf8_lossy)).finish()
    }
}

/// Commands kept after their input buffer is gone, one after the other: what MULTI queues.
#[derive(Clone, Debug, Default)]
pub struct Queue {
    bytes: Vec<u8>,
    spans: Vec<Span>,
    /// The end of each command's spans.
    ends: Vec<usize>,
}

impl Queue {
    /// Copies a command to the end.
    pub fn push(&mut self, args: Args<'_>) {
        args.iter().for_each(|arg| self.add(arg));
        self.end();
    }

    /// Adds an argument to the command that [`Queue::end`] ends.
    pub fn add(&mut self, arg: &[u8]) {
        self.spans.push(Span { start: self.bytes.len(), len: arg.len() });
        self.bytes.extend_from_slice(arg);
    }

    /// Ends a command.
    pub fn end(&mut self) {
        self.ends.push(self.spans.len());
    }

    /// Removes all commands, and keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.spans.clear();
        self.ends.clear();
    }

    /// Number of queued commands.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether no command is queued.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes of memory in use.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.spans.len() * size_of::<Span>()
    }

    /// The commands, in order.
    pub fn iter(&self) -> impl Iterator<Item = Args<'_>> {
        self.ends.iter().enumerate().map(|(nth, &end)| {
            let first = if nth == 0 { 0 } else { self.ends[nth - 1] };
            Args::new(&self.bytes, &self.spans[first..end])
        })
    }
}
