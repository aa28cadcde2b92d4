//! Names of parts.

/// Names by number, in one text: a large network has hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NameList {
    text: String,
    /// End of each name in the text [bytes].
    ends: Vec<u32>,
}

impl NameList {
    /// Adds a name.
    pub fn push(&mut self, name: &str) {
        self.text.push_str(name);
        self.ends.push(self.text.len() as u32);
    }

    /// Number of names.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True without names.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The names in the order of their numbers.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        (0..self.len()).map(|number| &self[number])
    }
}

impl std::ops::Index<usize> for NameList {
    type Output = str;
    fn index(&self, number: usize) -> &str {
        let begin = number.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.text[begin as usize..self.ends[number] as usize]
    }
}

impl<'a> Extend<&'a str> for NameList {
    fn extend<T: IntoIterator<Item = &'a str>>(&mut self, names: T) {
        names.into_iter().for_each(|name| self.push(name));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_by_number_and_listed_in_order() {
        let mut names = NameList::default();
        names.push("server");
        names.extend(["", "satellite reverse"]);
        assert_eq!([&names[0], &names[1], &names[2]], ["server", "", "satellite reverse"]);
        assert!(names.iter().eq(["server", "", "satellite reverse"]));
        assert_eq!((names.len(), names.is_empty()), (3, false));
    }
}
