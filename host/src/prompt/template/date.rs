//! `strftime_now`: Python's `strftime` for a moment in UTC, given as Unix seconds.

const DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A moment, taken apart.
struct Moment {
    year: i64,
    /// 1 to 12.
    month: i64,
    /// 1 to 31.
    day: i64,
    /// 1 to 366.
    day_of_year: i64,
    /// 0 is Monday.
    weekday: i64,
    /// Seconds since midnight.
    second: i64,
}

/// Formats `unix` with the usual `%` codes; an unknown code stays as it is written, as in C.
pub(super) fn format(pattern: &str, unix: i64) -> String {
    let moment = Moment::from_unix(unix);
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut rest = pattern.chars();
    while let Some(c) = rest.next() {
        if c != '%' {
            out.push(c);
            continue;
        }
        match rest.next() {
            // %-d: without leading zeros.
            Some('-') => match rest.next() {
                Some(code) => match moment.code(code) {
                    Some(text) => out.push_str(without_zeros(&text)),
                    None => out.extend(['%', '-', code]),
                },
                None => out.push_str("%-"),
            },
            Some(code) => match moment.code(code) {
                Some(text) => out.push_str(&text),
                None => out.extend(['%', code]),
            },
            None => out.push('%'),
        }
    }
    out
}

fn without_zeros(text: &str) -> &str {
    let short = text.trim_start_matches('0');
    if short.is_empty() { "0" } else { short }
}

impl Moment {
    fn from_unix(unix: i64) -> Self {
        // Beyond this the year has more than four digits; no clock says so.
        let unix = unix.clamp(-62_135_596_800, 253_402_300_799);
        let (days, second) = (unix.div_euclid(86_400), unix.rem_euclid(86_400));
        // Counted from 1 March of year 0, leap days come last in a year and the months follow one formula.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let month_from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month_from_march + 2) / 5 + 1;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        // 1 March is day 60, or 61; January and February are the last 59 or 60 days of the shifted year.
        let day_of_year = if month > 2 { of_year + 60 + i64::from(leap) } else { of_year - 305 };
        Self { year, month, day, day_of_year, weekday: (days + 3).rem_euclid(7), second }
    }

    fn code(&self, code: char) -> Option<String> {
        let (hour, minute, second) = (self.second / 3600, self.second / 60 % 60, self.second % 60);
        let half = if hour % 12 == 0 { 12 } else { hour % 12 };
        let (day_name, month_name) = (DAYS[self.weekday as usize], MONTHS[self.month as usize - 1]);
        let (year, month, day) = (self.year, self.month, self.day);
        Some(match code {
            'Y' => year.to_string(),
            'y' => format!("{:02}", year % 100),
            'm' => format!("{month:02}"),
            'd' => format!("{day:02}"),
            'e' => format!("{day:2}"),
            'j' => format!("{:03}", self.day_of_year),
            'H' => format!("{hour:02}"),
            'I' => format!("{half:02}"),
            'M' => format!("{minute:02}"),
            'S' => format!("{second:02}"),
            'f' => "000000".to_owned(),
            'p' => if hour < 12 { "AM" } else { "PM" }.to_owned(),
            'A' => day_name.to_owned(),
            'a' => day_name[..3].to_owned(),
            'B' => month_name.to_owned(),
            'b' | 'h' => month_name[..3].to_owned(),
            'u' => (self.weekday + 1).to_string(),
            'w' => ((self.weekday + 1) % 7).to_string(),
            'F' => format!("{year}-{month:02}-{day:02}"),
            'D' | 'x' => format!("{month:02}/{day:02}/{:02}", year % 100),
            'T' | 'X' => format!("{hour:02}:{minute:02}:{second:02}"),
            'R' => format!("{hour:02}:{minute:02}"),
            'c' => format!(
                "{} {} {day:2} {hour:02}:{minute:02}:{second:02} {year}",
                &day_name[..3],
                &month_name[..3]
            ),
            'Z' => "UTC".to_owned(),
            'z' => "+0000".to_owned(),
            'n' => "\n".to_owned(),
            't' => "\t".to_owned(),
            '%' => "%".to_owned(),
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_agree_with_the_calendar() {
        // Checked with `date -u -d @N`.
        let cases = [
            (0, "1970-01-01 Thursday 001"),
            (951_782_400, "2000-02-29 Tuesday 060"),
            (951_868_800, "2000-03-01 Wednesday 061"),
            (1_709_164_800, "2024-02-29 Thursday 060"),
            (1_735_603_200, "2024-12-31 Tuesday 366"),
            (1_735_689_600, "2025-01-01 Wednesday 001"),
            (4_107_542_400, "2100-03-01 Monday 060"),
            (-1, "1969-12-31 Wednesday 365"),
        ];
        for (unix, expected) in cases {
            assert_eq!(format("%Y-%m-%d %A %j", unix), expected);
        }
    }

    #[test]
    fn codes_of_chat_templates_work() {
        let unix = 1_753_862_400 + 3600 + 60 + 1; // 2025-07-30 09:01:01
        assert_eq!(format("%d %b %Y", unix), "30 Jul 2025");
        assert_eq!(format("%B %-d, %Y %-I:%M %p", unix), "July 30, 2025 9:01 AM");
        assert_eq!(format("%H:%M:%S %Z%z 100%% %q %", unix), "09:01:01 UTC+0000 100% %q %");
        assert_eq!(format("%c", unix), "Wed Jul 30 09:01:01 2025");
    }

    #[test]
    fn absurd_moments_do_not_panic() {
        for unix in [i64::MIN, i64::MAX, -62_135_596_800] {
            assert!(!format("%c %j %-d %-", unix).is_empty());
        }
    }
}
