"""When: the time that a question speaks of, such as "last week" or 先週, as days. English and Japanese. Pure."""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import date, timedelta
from typing import NamedTuple

from strands_manga_memory.language.texts.excerpts import excerpt


class Days(NamedTuple):
    """Days from one to another, both included."""

    first: date
    last: date

    def __contains__(self, day: object) -> bool:
        """Whether a day is one of them."""
        return isinstance(day, date) and self.first <= day <= self.last


_MONTHS = list(map(str.lower, calendar.month_name[1:]))
_WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
_NUMBER = rf"(\d{{1,3}}|{'|'.join(_WORDS)}|an?)"


def _number(text: str) -> int:
    return int(text) if text.isdigit() else _WORDS.index(text) + 1 if text in _WORDS else 1


def _ago(days: int, within: int = 0) -> Callable[[date, re.Match[str]], Days]:
    return lambda today, _: Days(today - timedelta(days + within), today - timedelta(days))


def _counted(days: int) -> Callable[[date, re.Match[str]], Days]:
    """So many days, weeks or months back, give or take half of one."""

    def found(today: date, match: re.Match[str]) -> Days:
        middle, half = today - timedelta(days * _number(match[1])), timedelta(days // 2)
        return Days(middle - half, middle + half)

    return found


def _week(back: int) -> Callable[[date, re.Match[str]], Days]:
    def found(today: date, _: re.Match[str]) -> Days:
        monday = today - timedelta(today.weekday() + 7 * back)
        return Days(monday, monday + timedelta(6))

    return found


def _month(back: int) -> Callable[[date, re.Match[str]], Days]:
    def found(today: date, _: re.Match[str]) -> Days:
        first = today.replace(day=1)
        for _step in range(back):
            first = (first - timedelta(1)).replace(day=1)
        return Days(first, _end_of(first))

    return found


def _year(back: int) -> Callable[[date, re.Match[str]], Days]:
    return lambda today, _: Days(date(today.year - back, 1, 1), date(today.year - back, 12, 31))


def _named(today: date, match: re.Match[str]) -> Days | None:
    """The latest such month, or day of a month, that has begun."""
    said = match.groupdict()
    month = _MONTHS.index(said["month"]) + 1 if not said["month"].isdigit() else int(said["month"])
    day = said.get("day") or said.get("before")
    for year in (today.year, today.year - 1):
        try:
            first = date(year, month, int(day) if day else 1)
        except ValueError:
            return None
        if first <= today:
            return Days(first, first if day else _end_of(first))
    return None


def _end_of(first: date) -> date:
    return (first.replace(day=28) + timedelta(4)).replace(day=1) - timedelta(1)


_RULES: tuple[tuple[re.Pattern[str], Callable[[date, re.Match[str]], Days | None]], ...] = tuple(
    (re.compile(pattern), days)
    for pattern, days in (
        (r"\bthe day before yesterday\b|一昨日|おととい", _ago(2)),
        (r"\byesterday\b|\blast night\b|昨日|きのう|昨夜", _ago(1)),
        (r"\btoday\b|\bthis morning\b|今日|本日|今朝", _ago(0)),
        (rf"\b{_NUMBER} days? ago\b|(?<![月\d])(\d{{1,3}})日前", lambda today, match: _counted(1)(today, _first(match))),
        (rf"\b{_NUMBER} weeks? ago\b|(\d{{1,2}})週間前", lambda today, match: _counted(7)(today, _first(match))),
        (rf"\b{_NUMBER} months? ago\b|(\d{{1,2}})(?:か|ヶ|カ|ケ)月前", lambda today, match: _counted(30)(today, _first(match))),
        (r"\blast week\b|先週", _week(1)),
        (r"\bthis week\b|今週", _week(0)),
        (r"先々週", _week(2)),
        (r"\blast month\b|先月", _month(1)),
        (r"\bthis month\b|今月", _month(0)),
        (r"\blast year\b|去年|昨年", _year(1)),
        (rf"\b(?:(?P<before>\d{{1,2}})(?:st|nd|rd|th)?(?: of)? )(?P<month>{'|'.join(_MONTHS)})\b", _named),
        (rf"\b(?P<month>{'|'.join(_MONTHS)}) (?P<day>\d{{1,2}})(?:st|nd|rd|th)?\b", _named),
        (rf"\b(?:in|last|during) (?P<month>{'|'.join(_MONTHS)})\b", _named),
        (r"(?P<month>\d{1,2})月(?P<day>\d{1,2})日", _named),
        (r"(?<!\d)(?P<month>\d{1,2})月(?!\d|前)", _named),
    )
)


_WHOLE = re.compile("(.*)")


def _first(match: re.Match[str]) -> re.Match[str]:
    """Return a match whose first group is the number, in whichever language it was said."""
    number = next(group for group in match.groups() if group)
    return _WHOLE.fullmatch(number) or match


def days_of(text: str, today: Callable[[], date]) -> Days | None:
    """Return the days that a text speaks of, None if it names none; ``today`` is asked only where it does."""
    low = excerpt(text).lower()
    for pattern, days in _RULES:
        if (match := pattern.search(low)) is not None and (found := days(today(), match)) is not None:
            return found
    return None
