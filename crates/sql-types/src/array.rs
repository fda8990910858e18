//! Array values and their text form.
