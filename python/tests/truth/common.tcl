# Common parts of the experiments: random numbers, TCP, queues, and a session that starts within the first second.
$defaultRNG seed 12345
set starts [new RNG]
for {set i 1} {$i < $seed} {incr i} { $defaultRNG next-substream; $starts next-substream }
set start [new RandomVariable/Uniform]
$start use-rng $starts
$start set min_ 0
$start set max_ 1

Agent/TCP set packetSize_ 1000
Agent/TCP set useHeaders_ true
Agent/TCP set window_ $window
Agent/TCP set windowInit_ 2
Agent/TCP set tcpTick_ 0.01
Agent/TCP set minrto_ 0.2
Agent/TCP set rtxcur_init_ 3.0
Agent/TCP set rfc2988_ true
Agent/TCP set singledup_ 1

Queue set limit_ 100000
foreach {name value} {gentle_ false bytes_ false queue_in_bytes_ false mean_pktsize_ 1040 adaptive_ 0 wait_ true setbit_ false} {
  Queue/RED set $name $value
}
foreach {name value} "blimit_ [expr $buffer * 1040] buckets_ 101 quantum_ 1040 mask_ 0" { Queue/DRR set $name $value }

# Creates a long-lived connection; returns its agent.
proc session {from to} {
  global ns tcp window start
  set agent [new Agent/TCP/$tcp]
  $agent set ssthresh_ $window
  set sink [new Agent/TCPSink[expr {$tcp == "Sack1" ? "/Sack1" : ""}]]
  $ns attach-agent $from $agent
  $ns attach-agent $to $sink
  $ns connect $agent $sink
  set file [new Application/FTP]
  $file attach-agent $agent
  $ns at [$start value] "$file start"
  return $agent
}
