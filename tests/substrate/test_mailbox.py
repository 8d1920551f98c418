"""Mailboxes of every substrate: numbered, idempotent, bounded, forgotten once consumed."""

from tests.substrate.conforming import ONE, TWO, Tested, at_once, claim_all, conforms, problem_of


@conforms()
async def test_commands_wait_in_the_order_in_which_they_were_sent(substrate: Tested) -> None:
    """Their numbers grow."""
    numbers = [await substrate.send(ONE, f"c{n}", b"%d" % n) for n in range(5)]
    assert numbers == sorted(set(numbers))
    assert numbers[0] > 0
    assert list(await substrate.commands(ONE)) == [(number, b"%d" % n) for n, number in enumerate(numbers)]


@conforms()
async def test_a_command_that_is_sent_twice_is_there_once(substrate: Tested) -> None:
    """By its id, in its session; also when both are sent at once, and long after it was consumed."""
    first, again = await at_once(substrate.send(ONE, "c1", b"1"), substrate.send(ONE, "c1", b"1"))
    assert isinstance(first, int)
    assert first == again
    other = await substrate.send(TWO, "c1", b"other")
    assert [command for _, command in await substrate.commands(ONE)] == [b"1"]
    assert list(await substrate.commands(ONE, after=first)) == []
    assert await substrate.send(ONE, "c1", b"1") == first
    assert list(await substrate.commands(ONE)) == []
    assert list(await substrate.commands(TWO)) == [(other, b"other")]


@conforms()
async def test_a_command_that_was_consumed_calls_nobody_when_it_is_sent_again(substrate: Tested) -> None:
    """It has had its effect."""
    number = await substrate.send(ONE, "c1", b"1")
    claim = await substrate.claim("w")
    assert await claim.release(number)
    await substrate.send(ONE, "c1", b"1")
    assert await claim_all(substrate) == {}


@conforms()
async def test_commands_up_to_the_cursor_are_forgotten(substrate: Tested) -> None:
    """Those behind it stay; an older cursor brings nothing back."""
    numbers = [await substrate.send(ONE, f"c{n}", b"%d" % n) for n in range(4)]
    assert [command for _, command in await substrate.commands(ONE, after=numbers[1])] == [b"2", b"3"]
    assert [command for _, command in await substrate.commands(ONE)] == [b"2", b"3"]
    assert list(await substrate.commands(ONE, after=numbers[3])) == []
    assert list(await substrate.commands(ONE, after=numbers[2])) == []
    assert await substrate.send(ONE, "c4", b"4") > numbers[3]
    assert [command for _, command in await substrate.commands(ONE)] == [b"4"]


@conforms(mailbox=3)
async def test_a_mailbox_is_bounded(substrate: Tested) -> None:
    """What is too much is refused; what was sent before is known; there is room once some are consumed."""
    numbers = [await substrate.send(ONE, f"c{n}", b"") for n in range(3)]
    assert await problem_of(substrate.send(ONE, "c3", b"")) == "full"
    assert await substrate.send(ONE, "c2", b"") == numbers[2]
    await substrate.send(TWO, "c3", b"")
    await substrate.commands(ONE, after=numbers[0])
    assert await substrate.send(ONE, "c3", b"") > numbers[2]
    assert await problem_of(substrate.send(ONE, "c4", b"")) == "full"


@conforms()
async def test_many_send_at_once(substrate: Tested) -> None:
    """Nothing is lost, and each has a number of its own."""
    numbers = await at_once(*(substrate.send(ONE, f"c{n}", b"%d" % n) for n in range(100)))
    found = await substrate.commands(ONE)
    assert [number for number, _ in found] == sorted({number for number, _ in found})
    assert {number: int(command) for number, command in found} == {
        number: n for n, number in enumerate(numbers)
    }
